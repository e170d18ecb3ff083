// The first sources of this layer are on their way.
