package main

import "strings"

// diffLine is a line of a difference: '-' one of the old text's, '+' one of the new
// one's, ' ' one of both. number is the line's in the new text, from 0.
type diffLine struct {
	sign   byte
	number int
	text   string
}

// lines are a text's, without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// mostCells bounds the table of difference; a larger one is not worth its memory.
const mostCells = 4 << 20

// difference is the shortest one, line by line.
func difference(was, now []string) (all []diffLine) {
	if (len(was)+1)*(len(now)+1) > mostCells {
		for _, l := range was {
			all = append(all, diffLine{'-', 0, l})
		}
		for n, l := range now {
			all = append(all, diffLine{'+', n, l})
		}
		return all
	}
	// longest[i][j] is how much was[i:] and now[j:] have in common.
	longest := make([][]int32, len(was)+1)
	for i := range longest {
		longest[i] = make([]int32, len(now)+1)
	}
	for i := len(was) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if was[i] == now[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(was) || j < len(now) {
		switch {
		case i < len(was) && j < len(now) && was[i] == now[j]:
			all = append(all, diffLine{' ', j, now[j]})
			i, j = i+1, j+1
		case j == len(now) || i < len(was) && longest[i+1][j] >= longest[i][j+1]:
			all = append(all, diffLine{'-', j, was[i]})
			i++
		default:
			all = append(all, diffLine{'+', j, now[j]})
			j++
		}
	}
	return all
}
