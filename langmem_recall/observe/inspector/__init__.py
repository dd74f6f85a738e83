"""The inspector: recorded recalls on one page that needs nothing but a browser."""
