"""Where rows go: what a sink is, and the sinks that come with Anabranch."""
