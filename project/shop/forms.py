from __future__ import annotations

from django import forms

ITEMS = ["Tea", "Coffee", "Cocoa"]


class OrderForm(forms.Form):
    item = forms.ChoiceField(choices=[(item, item) for item in ITEMS])
    quantity = forms.IntegerField(min_value=1, max_value=100, initial=1)
