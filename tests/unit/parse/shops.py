"""Pages of shops, in the shapes that shops have them, with what must be found on each.

The rule: what is expected is written by hand from the page, never copied from a result. A line is: name | price currency | availability |
sku | gtin | brand | number of images | rating | address; what is missing is "-".
"""

from typing import Final


def ld(*blocks: str) -> str:
    """A page with blocks of JSON-LD."""
    return "<title>Shop</title>" + "".join(f'<script type="application/ld+json">{block}</script>' for block in blocks)


def offer(price: str, more: str = "") -> str:
    """A page with a product that costs `price`, which is JSON."""
    return ld(f'{{"@type":"Product","name":"Lamp","offers":{{"@type":"Offer","price":{price}{more}}}}}')


SHOPS: Final[dict[str, tuple[str, list[str]]]] = {
    "JSON-LD, all properties": (
        ld("""{"@context":"https://schema.org/","@type":"Product","name":"Oak &amp; Ash Table","sku":"T-1","gtin13":"4006381333931",
            "brand":{"@type":"Brand","name":"Tischler"},"image":["/a.jpg",{"@type":"ImageObject","url":"b.jpg"}],"url":"/p/t-1",
            "aggregateRating":{"@type":"AggregateRating","ratingValue":"4,5","bestRating":"5","reviewCount":"1,234"},
            "offers":{"@type":"Offer","price":"499.90","priceCurrency":"EUR","availability":"https://schema.org/InStock"}}"""),
        [
            "Oak & Ash Table | 499.90 EUR | in_stock | T-1 | 4006381333931 | Tischler | 2 | 4.5/5 (1234) | https://shop.example/p/t-1"
        ],
    ),
    "JSON-LD, array of types and products": (
        ld("""[{"@type":["Product","Car"],"name":"A","offers":[{"price":2,"priceCurrency":"USD"}]},
            {"@type":"http://schema.org/Product","name":"B","offers":{"price":0,"priceCurrency":"USD","availability":"SoldOut"}}]"""),
        ["A | 2 USD | - | - | - | - | 0 | - | -", "B | 0 USD | sold_out | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, graph with references": (
        ld("""{"@context":"https://schema.org","@graph":[{"@type":"WebPage","@id":"#page","name":"Page"},
            {"@type":"Product","@id":"#p","name":"Kettle","brand":{"@id":"#b"},"offers":{"@id":"#o"},"image":{"@id":"#i"}},
            {"@type":"Brand","@id":"#b","name":"Boil"},{"@type":"ImageObject","@id":"#i","contentUrl":"https://cdn.example/k.png"},
            {"@type":"Offer","@id":"#o","price":"29.00","priceCurrency":"GBP","availability":"http://schema.org/PreOrder"}]}"""),
        ["Kettle | 29.00 GBP | pre_order | - | - | Boil | 1 | - | -"],
    ),
    "JSON-LD, aggregate offer": (
        ld("""{"@type":"Product","name":"Phone","offers":{"@type":"AggregateOffer","lowPrice":"199,00","highPrice":"259,00",
            "priceCurrency":"EUR","offerCount":"7","offers":[{"availability":"OutOfStock"},{"availability":"InStock"}]}}"""),
        ["Phone | 199.00 EUR | in_stock | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, offers nested in an aggregate": (
        ld("""{"@type":"Product","name":"Shoe","offers":{"@type":"AggregateOffer","priceCurrency":"SEK","offers":[
            {"price":"899","availability":"OutOfStock"},{"price":"999","availability":"InStock"},{"price":"1099","availability":"InStock"}]}}"""),
        ["Shoe | 999 SEK | in_stock | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, price specifications": (
        ld("""{"@type":"Product","name":"Bike","offers":{"@type":"Offer","availability":"BackOrder","priceSpecification":[
            {"@type":"UnitPriceSpecification","priceType":"https://schema.org/ListPrice","price":1500,"priceCurrency":"CHF"},
            {"@type":"UnitPriceSpecification","price":1299.5,"priceCurrency":"CHF"}]}}"""),
        ["Bike | 1299.5 CHF | back_order | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, group with variants": (
        ld("""{"@type":"ProductGroup","name":"Shirt","productGroupID":"S","brand":"Linen","url":"/s","hasVariant":[
            {"@type":"Product","sku":"S-1","name":"Shirt, red","image":"r.jpg","offers":{"price":"30","priceCurrency":"EUR"}},
            {"@type":"Product","sku":"S-2","offers":{"price":"35","priceCurrency":"EUR","url":"/s?v=2"}}]}"""),
        [
            "Shirt, red | 30 EUR | - | S-1 | - | Linen | 1 | - | -",
            "Shirt | 35 EUR | - | S-2 | - | Linen | 0 | - | https://shop.example/s?v=2",
        ],
    ),
    "JSON-LD, list of items": (
        ld("""{"@type":"ItemList","itemListElement":[{"@type":"ListItem","position":1,"item":{"@type":"Product","name":"One","url":"/1"}},
            {"@type":"ListItem","position":2,"item":{"@type":"Product","name":"Two","url":"/2",
            "offers":{"price":"5","priceCurrency":"USD"}}}]}"""),
        [
            "One | - - | - | - | - | - | 0 | - | https://shop.example/1",
            "Two | 5 USD | - | - | - | - | 0 | - | https://shop.example/2",
        ],
    ),
    "JSON-LD, related products are not the page's": (
        ld("""{"@type":"WebPage","mainEntity":{"@type":"Product","name":"Main","sku":7,"isRelatedTo":[{"@type":"Product","name":"Other"}],
            "isSimilarTo":{"@type":"Product","name":"Another"}}}"""),
        ["Main | - - | - | 7 | - | - | 0 | - | -"],
    ),
    "JSON-LD, broken: comments and trailing commas": (
        ld("""/* product */ {"@type":"Product", // a lamp
            "name":"Lamp","url":"https://shop.example//l","offers":{"price":"9.99","priceCurrency":"USD",},}"""),
        ["Lamp | 9.99 USD | - | - | - | - | 0 | - | https://shop.example//l"],
    ),
    "JSON-LD, broken: control characters, bad escapes": (
        ld('{"@type":"Product","name":"Bob\\\'s\n\tlamp\x01","offers":{"price":"9.99","priceCurrency":"USD"}};'),
        ["Bob's lamp | 9.99 USD | - | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, broken: quotation marks in a text": (
        ld('{"@type":"Product","name":"24" Monitor","sku":"M24"}'),
        ['24" Monitor | - - | - | M24 | - | - | 0 | - | -'],
    ),
    "JSON-LD, broken: escaped as HTML": (
        ld("{&quot;@type&quot;:&quot;Product&quot;,&quot;name&quot;:&quot;Lamp&quot;}"),
        ["Lamp | - - | - | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, broken: CDATA and HTML comments": (
        ld('//<![CDATA[\n{"@type":"Product","name":"C"}\n//]]>', '<!-- {"@type":"Product","name":"D"} -->'),
        ["C | - - | - | - | - | - | 0 | - | -", "D | - - | - | - | - | - | 0 | - | -"],
    ),
    "JSON-LD, one block of no use beside a good one": (
        ld('{"@type":"Product","name":', '{"@type":"Product","name":"Good","offers":{"price":NaN}}'),
        ["Good | - - | - | - | - | - | 0 | - | -"],
    ),
    "microdata": (
        """<div itemscope itemtype="http://schema.org/Product"><h1 itemprop="name">Chair <b>No. 14</b></h1>
        <img itemprop="image" src="/c.jpg"><link itemprop="image" href="/d.jpg"><meta itemprop="sku" content="C14">
        <a itemprop="url" href="/c14">more</a>
        <span itemprop="brand" itemscope itemtype="https://schema.org/Brand"><span itemprop="name">Thonet</span></span>
        <div itemprop="offers" itemscope itemtype="http://schema.org/Offer"><span itemprop="price" content="450.00">450,00 €</span>
        <meta itemprop="priceCurrency" content="EUR"><link itemprop="availability" href="http://schema.org/LimitedAvailability"></div>
        <div itemprop="aggregateRating" itemscope itemtype="http://schema.org/AggregateRating"><span itemprop="ratingValue">9.1</span> of
        <span itemprop="bestRating">10</span>, <span itemprop="ratingCount">12</span></div></div>""",
        ["Chair No. 14 | 450.00 EUR | limited | C14 | - | Thonet | 2 | 9.1/10 (12) | https://shop.example/c14"],
    ),
    "microdata, price and words at the product": (
        """<div itemscope itemtype="http://data-vocabulary.org/Product"><span itemprop="name">Mug</span>
        <span itemprop="price">1 299 kr</span><span itemprop="currency">NOK</span><span itemprop="availability">In stock</span></div>""",
        ["Mug | 1299 NOK | in_stock | - | - | - | 0 | - | -"],
    ),
    "microdata, parts elsewhere by itemref": (
        """<div itemscope itemtype="https://schema.org/Product" itemref="o n"></div><p id="n"><b itemprop="name">Pan</b></p>
        <div id="o"><div itemprop="offers" itemscope itemtype="https://schema.org/Offer"><i itemprop="price">$12.50</i></div></div>""",
        ["Pan | 12.50 USD | - | - | - | - | 0 | - | -"],
    ),
    "RDFa": (
        """<div vocab="https://schema.org/" typeof="Product" resource="#p"><span property="name">Desk</span>
        <img property="image" src="/desk.jpg"><span property="gtin13">4006381333931</span>
        <div property="offers" typeof="Offer"><span property="price" content="300.00">300</span>
        <meta property="priceCurrency" content="PLN">
        <link property="availability" href="https://schema.org/InStock"></div></div>""",
        ["Desk | 300.00 PLN | in_stock | - | 4006381333931 | - | 1 | - | -"],
    ),
    "RDFa with prefixes": (
        """<div prefix="schema: http://schema.org/" typeof="schema:Product"><span property="schema:name">Shelf</span>
        <div rel="schema:offers"></div><div property="schema:offers" typeof="schema:Offer"><span property="schema:price">80,00</span>
        <span property="schema:priceCurrency">eur</span></div></div>""",
        ["Shelf | 80.00 EUR | - | - | - | - | 0 | - | -"],
    ),
    "Open Graph": (
        """<meta property="og:type" content="product"><meta property="og:title" content="Vase"><meta property="og:image" content="/v.jpg">
        <meta property="og:url" content="https://shop.example/vase"><meta property="product:price:amount" content="19.95">
        <meta property="product:price:currency" content="USD"><meta property="product:availability" content="oos">
        <meta property="product:retailer_item_id" content="V-9"><meta property="product:brand" content="Clay">""",
        ["Vase | 19.95 USD | out_of_stock | V-9 | - | Clay | 1 | - | https://shop.example/vase"],
    ),
    "two grammars, one product": (
        ld('{"@type":"Product","name":"Sofa","sku":"S1","offers":{"price":"900"}}')
        + """<meta property="og:title" content="Sofa - Shop"><meta property="og:type" content="product">
        <meta property="og:image" content="/s.jpg">
        <meta property="product:price:amount" content="900.00"><meta property="product:price:currency" content="DKK">
        <div itemscope itemtype="https://schema.org/Product"><span itemprop="name">The Sofa</span>
        <span itemprop="brand">Soft</span></div>""",
        ["Sofa | 900 DKK | - | S1 | - | Soft | 1 | - | -"],
    ),
    "the same product twice": (
        ld(
            '{"@type":"Product","name":"Cup","sku":"1"}',
            '{"@type":"Product","name":"Cup","sku":"1","offers":{"price":3,"priceCurrency":"EUR"}}',
        ),
        ["Cup | 3 EUR | - | 1 | - | - | 0 | - | -"],
    ),
    "nonsense is left out": (
        ld("""{"@type":"Product","name":"Odd","gtin13":"4006381333932","sku":{"a":1},"image":["javascript:x","data:image/png;base64,x",5],
            "offers":{"price":"-5","priceCurrency":"QQQ","availability":"maybe"},"aggregateRating":{"ratingValue":"900","bestRating":5}}"""),
        ["Odd | - - | - | - | - | - | 0 | - | -"],
    ),
    "no product": ("<title>About us</title><p>We sell lamps for 5 €.", []),
}
