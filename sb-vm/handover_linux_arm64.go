package main

var oldCalls []shownCall
