package main

import (
	"bytes"
	"fmt"
	"image/color"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/code128"
	"github.com/go-pdf/fpdf"
)

// eventTime is how tickets and mails write the time of an event.
const eventTime = "Monday, 2 January 2006, 15:04 MST"

// SeatLabelInvalid is the error of a label that no scanner at the door would know. It wraps the line of code that
// refused the label, so that a dead letter's traceback names it.
type SeatLabelInvalid struct {
	Label string
	at    place
}

func (e SeatLabelInvalid) Error() string {
	return fmt.Sprintf("SeatLabelInvalid: '%s' is not a row letter and a seat number", e.Label)
}

func (e SeatLabelInvalid) Unwrap() error { return e.at }

// place is a line of code.
type place runtime.Frame

// here is the line that calls it.
func here() place {
	pcs := make([]uintptr, 1)
	runtime.Callers(2, pcs) // without Callers and here
	frame, _ := runtime.CallersFrames(pcs).Next()
	return place(frame)
}

func (p place) Error() string {
	return fmt.Sprintf("File stagedoor/%s, line %d, in %s", filepath.Base(p.File), p.Line, p.Function)
}

// seatLabel is the seat's number and the letter of its row: 14C.
var seatLabel = regexp.MustCompile(`^[1-9][0-9]{0,2}[A-Z]$`)

// barcodeFor encodes an order and a seat for the scanners at the door.
func barcodeFor(orderID int64, label string) (barcode.Barcode, error) {
	if !seatLabel.MatchString(label) {
		return nil, SeatLabelInvalid{label, here()}
	}
	return code128.Encode(fmt.Sprintf("%d-%s", orderID, label))
}

// ticketsPDF draws one page for each seat. Its dates are the order's, so that the same order gives the same bytes.
func ticketsPDF(o order) ([]byte, error) {
	doc := fpdf.New("L", "mm", "A6", "")
	doc.SetAutoPageBreak(false, 0)
	doc.SetCatalogSort(true)
	doc.SetCreationDate(o.PlacedAt.UTC())
	doc.SetModificationDate(o.PlacedAt.UTC())
	doc.SetTitle(fmt.Sprintf("Tickets of order %d", o.ID), true)
	for _, label := range o.Labels {
		code, err := barcodeFor(o.ID, label)
		if err != nil {
			return nil, err
		}
		drawTicket(doc, o, label, code)
	}
	var pdf bytes.Buffer
	if err := doc.Output(&pdf); err != nil {
		return nil, fmt.Errorf("order %d: draw the PDF: %w", o.ID, err)
	}
	return pdf.Bytes(), nil
}

func drawTicket(doc *fpdf.Fpdf, o order, label string, code barcode.Barcode) {
	text := doc.UnicodeTranslatorFromDescriptor("") // the built-in fonts speak Windows-1252
	line := func(size, height float64, s string) {
		doc.SetFontSize(size)
		doc.CellFormat(0, height, text(s), "", 1, "L", false, 0, "")
	}
	doc.AddPage()
	doc.SetFont("Helvetica", "", 12)
	line(18, 10, o.Event)
	line(11, 8, o.StartsAt.UTC().Format(eventTime))
	line(24, 16, "Seat "+label)
	drawBars(doc, code, 11, 58, 110, 22)
	doc.SetXY(10, 82)
	line(9, 5, code.Content())
}

// drawBars draws a one-dimensional barcode as rectangles, one for each run of dark modules: sharp at any size.
func drawBars(doc *fpdf.Fpdf, code barcode.Barcode, x, y, width, height float64) {
	modules := code.Bounds().Dx()
	unit := width / float64(modules)
	start := -1 // of the run at hand; -1: none
	for i := range modules + 1 {
		dark := i < modules && code.At(i, 0) == color.Black
		switch {
		case dark && start < 0:
			start = i
		case !dark && start >= 0:
			doc.Rect(x+float64(start)*unit, y, float64(i-start)*unit, height, "F")
			start = -1
		}
	}
}
