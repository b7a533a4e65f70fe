DROP FUNCTION refuse_moved CASCADE;  -- with the triggers of a store that was closed
DROP FUNCTION store_move_notice;
DROP TABLE store_move;
