"""A crawl that is killed again and again, and the proof that nothing came of it.

`plan` says which faults strike and which web is crawled, `process` is the crawl as a victim, `ground` the folders and servers that it
needs, `ordeal` lets the faults strike, `proof` judges what is left, and `trial` is all of it in order.
"""
