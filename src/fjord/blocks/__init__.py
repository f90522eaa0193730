"""Cold blocks: history as rows in Parquet files, how they are written, found and read.

    schema     the columns of a row, whoever shows it
    rows       ops as they rest in the journal, as rows of the schema
    files      a folder, an object store, memory: how a file gets there whole
    store      the files of all blocks, and the metadata beside each block
    parquet    one block's file
    writer     from the journal to blocks, and from small blocks to large ones
    child      the blocks of one node, written by a child process
    reader     reading messages out of blocks, a part at a time in memory

Importing this package imports none of them: `schema` is needed where pyarrow is not.
"""
