"""What users declare: tables, transactions, and the verbs inside a transaction. Declarations only."""
