#!/bin/sed -f
# Links to a heading of the same page: Doxygen numbers headings, so the words stay and the link goes.
s|\[\([^]]*\)\](#[^)]*)|\1|g
