"""The streaming queries of TPCx-BB as ordered pipelines: shop clicks and store sales, and five questions about them.

TPCx-BB is a benchmark of a retailer's analytics. Five of its queries can be answered while events come in; a paper on
ordered stream processing (see ARCHITECTURE.md, references) used them, and its Table 1 gives the operators of each:

    query_1    sales  ─ SL ─ PS ─ PS ─ SF        items that are sold together
    query_2    clicks ─ SL ─ PS ─ SL ─ PS ─ SF   items that are viewed together
    query_3    clicks ─ SL ─ PS ─ PS             what is viewed before an item is bought
    query_4    clicks ─ SL ─ PS ─ SL ─ SF        shopping carts that are left behind
    query_15   sales  ─ SL ─ SL ─ PS             categories with flat or falling sales

SL is stateless, PS has a state for each key, SF has one state. Each module has its operators as plain functions, and
`query(source)`, which puts them together. `events` makes clicks and sales from a seed; `baskets` and `top_lists` are
parts that two queries share, `queries` names them all.

Answers come while the stream goes on: a list of an hour is emitted when something of a later hour arrives. So the
last hour, whose end nobody has seen, is not part of the answer.

Operators that have plain fields as state are compiled. Where that needs a detour (twelve items in four integers, a
top list in a hundred), the detour is in a module of its own.
"""
