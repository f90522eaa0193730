"""Cold blocks: history as rows in Parquet files, how they are written, found and read.

    schema     the columns of a row, whoever shows it
    decoding   columns of ops as they rest in the journal, as Arrow arrays
    rows       ops as rows of the schema
    store      where the files are: a folder, an object store, memory
    catalog    the metadata beside each block: its range, its checksum, its neighbours
    parquet    one block's file
    sealing    from the journal to blocks, by a child process (`python -m fjord.blocks`)
    cold       reading messages out of blocks, a part at a time in memory
    shelf      the blocks of one node: written, read, looked for and removed

Importing this package imports none of them: `schema` is needed where pyarrow is not.
"""
