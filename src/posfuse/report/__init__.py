"""From records to tables; never imports the model."""
