"""Draws a program's memory, as an SVG picture and as a page that holds the same picture."""

from pte_arenas.maps.page import draw_html
from pte_arenas.maps.picture import draw_svg

__all__ = ["draw_html", "draw_svg"]
