DROP TABLE backup_following;
