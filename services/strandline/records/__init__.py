"""Record batches and their records: the bytes that producers build, logs keep and consumers parse."""
