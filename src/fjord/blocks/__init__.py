"""Cold blocks: history as rows in Parquet files, how they are written, found and read.

    schema     the columns of a row, the same everywhere
    rows       ops as stored in the journal, as rows of the schema
    files      files in a folder, an object store or memory, written whole or not at all
    store      the files of all blocks, and the metadata beside each block
    parquet    the file of one block
    writer     from the journal to blocks, and from small blocks to large ones
    child      the blocks of one node, written by a child process
    reader     reading messages from blocks, with some parts in memory

Importing this package imports none of them: `schema` is needed where pyarrow is not installed.
"""
