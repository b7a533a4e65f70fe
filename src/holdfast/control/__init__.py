"""Operations that the command line, the API and the dashboard share."""
