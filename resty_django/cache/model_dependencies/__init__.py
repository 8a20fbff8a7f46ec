"""Invalidation of cached values when rows of models change.

A dependency on a model becomes tags of the value, and a change becomes the same tags, invalidated after its commit:

| tag | carried by a value that depends on | invalidated by a change of |
|---|---|---|
| `model:shop.product` | the table | any row |
| `model:shop.product:7` | one row | this row |
| `model:shop.product:*` | one row | an unknown number of rows, as by `QuerySet.update` |

A dependency on some fields has their names in brackets after the model: `model:shop.product[price]:7`.
"""
