DROP INDEX url_frontier_images, url_frontier_sitemaps;
