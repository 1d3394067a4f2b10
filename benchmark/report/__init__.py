"""What a results folder says, as pictures, a page and a table: ``python -m benchmark.report RESULTS``.

    points.py     rows to points: the median over the repeats of one configuration at one level
    style.py      markers, lines and hatches that stay apart without colour
    plots.py      one function per picture
    table.py      the Markdown table
    page.py       the HTML page, pictures inside
    write.py      all files of a report, of a sweep or of a round cost table
    published.py  figures that others have reported, to lay over ours

A configuration whose greedy text differs from plain decoding's is drawn hollow and named so, and is never called best;
the same holds for forced accept lengths, whose text is noise.
"""
