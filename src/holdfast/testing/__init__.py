"""Help for tests of programs that use holdfast: ship what we test with."""
