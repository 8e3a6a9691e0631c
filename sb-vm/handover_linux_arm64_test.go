package main

func tryOldCalls(string, func(name string, n int, err error)) {}

func expectOldCalls(func(...string)) {}

func tryOldOpen() {}

func expectOldOpen(func(...string)) {}
