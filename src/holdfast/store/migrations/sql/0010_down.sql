-- 0010 taken back

DROP TABLE login_failures;
DROP TABLE api_keys;
DROP TABLE sessions;
DROP TABLE users;
DROP TYPE account_role;
