DROP INDEX url_frontier_checks;
