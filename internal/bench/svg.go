package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// growthPicture is the growth table as a picture: a bar for each case, worker and server apart, and the limit across. What
// is measured against another small case stands apart. It bears its own colours and stands on a white ground.
func (rs results) growthPicture(rounds int) []byte {
	const left, top, bar, step, apart, scale = 226, 46, 22, 34, 22, 340.0 // pixels; scale is the width of 1.0
	var bars, labels strings.Builder
	y := top - step
	for i, r := range rs.growthRows(rounds) {
		ratio := r.Ratio
		if r.Base == "" {
			ratio = 1
		}
		if y += step; r.Base == "" && i > 0 {
			y += apart
		}
		if math.IsNaN(ratio + r.Worker + r.Server) {
			continue // it was not measured
		}
		worker := scale * ratio * r.Worker / (r.Worker + r.Server)
		server := scale*ratio - worker
		fmt.Fprintf(&labels, `<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text>`+"\n", left-10, y+16, html.EscapeString(r.Case))
		fmt.Fprintf(&bars, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#2a6f97"/>`+"\n", left, y, worker, bar)
		fmt.Fprintf(&bars, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#89c2d9"/>`+"\n", left+worker, y, server, bar)
		// The figure is read also where a line runs through it.
		fmt.Fprintf(&labels, `<text x="%.1f" y="%d" fill="#222" stroke="#fff" stroke-width="5" paint-order="stroke">%.2f</text>`+"\n",
			left+scale*ratio+8, y+16, ratio)
	}
	bottom := y + bar + 10
	height := bottom + 52
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d" width="760" height="%d" role="img" font-family="system-ui, sans-serif" font-size="13">`+"\n", height, height)
	fmt.Fprintf(&b, "<title>What a job costs as things grow, relative to the small case</title>\n<rect width=\"760\" height=\"%d\" fill=\"#fff\"/>\n", height)
	b.WriteString(`<text x="16" y="26" font-size="15" font-weight="600" fill="#222">CPU a job as things grow, relative to the small case above it</text>` + "\n")
	b.WriteString(bars.String())
	line := func(at float64, colour, dash, label string) {
		x := left + scale*at
		fmt.Fprintf(&b, `<line x1="%.1f" y1="38" x2="%.1f" y2="%d" stroke="%s" stroke-dasharray="%s"/>`+"\n", x, x, bottom, colour, dash)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="12" fill="%s">%s</text>`+"\n", x, bottom+14, colour, label)
	}
	line(1, "#555", "2 3", "1")
	line(growthLimit, "#b3261e", "5 4", "limit 1.3")
	b.WriteString(labels.String())
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="#2a6f97"/><text x="%d" y="%d" fill="#222">worker</text>`+"\n", left, height-24, left+18, height-13)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="#89c2d9"/><text x="%d" y="%d" fill="#222">Redis</text>`+"\n", left+80, height-24, left+98, height-13)
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
