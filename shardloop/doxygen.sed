#!/bin/sed -f
# Plain comments as Doxygen reads them: that at a file's head, those before a declaration, and those behind one.
1s|^/\* \([a-z0-9_.]*\) - |/** @file \1\n * |
s|^\( *\)/\* ----.*||
s|^\( *\)/\* |\1/** |
s|\([,;{)]\) */\* |\1 /**< |
# Text that Doxygen would read as a command, or as a tag.
s|\\xNN|\\\\xNN|g
s|<html\([^>]*\)>|\&lt;html\1\&gt;|g
