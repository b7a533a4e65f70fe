DROP TABLE archive_segments;
DROP TABLE archive_machines;
