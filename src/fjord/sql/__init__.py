"""The journal table of the SQL model: reading it from dumps and databases, and writing it (FJ-17).

importer   pushes the rows of such a table
exporter   reads jobs as such rows
dump       the rows of a table in a mysqldump
live       the rows of a table in MySQL, MariaDB or PostgreSQL
shape      rows of the table as jobs, and jobs as rows
writing    rows as INSERT statements or CSV, and what makes the table
"""
