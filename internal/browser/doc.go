// Package browser holds the tests of the page as a person uses it, in a headless Chromium. It is a module of its own, so
// that what drives the browser never enters the library's go.mod. From this folder:
//
//	go test .                    skipped, aloud, where no chromium is installed
//	SHOTS=FOLDER go test -trimpath -run TestPictures .    pictures of each page and state, wide, narrow and dark
package browser
