"""The lifecycle controller: events in, effects out; ``driver`` performs the effects."""
