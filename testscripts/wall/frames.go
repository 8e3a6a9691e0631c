package main

func frames(r *report, n int) error { return nil }
