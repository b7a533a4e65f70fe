DROP TABLE store_identity, domain_block_counts, domain_blocks, documents, document_deletions;
DROP FUNCTION note_deleted_documents;
DELETE FROM page_parses WHERE parser = 'markdown';
