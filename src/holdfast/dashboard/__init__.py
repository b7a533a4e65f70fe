"""The dashboard: pages for a browser, rendered on the server, that show the crawl live and steer it.

The rule: pages call the same services as the API and the command line, under the same table of permissions. Everything that was crawled is
hostile text: templates escape it, and the Content-Security-Policy forbids inline scripts and styles.
"""
