"""Reading text: words, languages, times, what cannot be seen."""
