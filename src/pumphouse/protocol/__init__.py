"""What goes over the wire and what it means: operations, codecs, checks. No IO, no clock."""
