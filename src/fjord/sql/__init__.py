"""The journal table of the SQL model: reading it from dumps and databases, and writing it (FJ-17).

dump       the rows of a table in a mysqldump
live       the rows of a table in MySQL, MariaDB or PostgreSQL
shape      rows of the table as jobs, and jobs as rows
writing    rows as INSERT statements or CSV, and what makes the table
"""
