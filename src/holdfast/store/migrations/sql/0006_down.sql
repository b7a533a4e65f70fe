DROP TABLE product_prices, products, parse_results;
DROP TYPE product_availability;
