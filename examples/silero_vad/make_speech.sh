#!/bin/sh
# Makes speech.wav from text with espeak-ng 1.51 and sox 14.4.2 (Debian 12: `apt-get install
# espeak-ng sox`), the same bytes every time. Prints the seconds in which each sentence sounds.
# The demo does not need it: speech.wav is in the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

now=0
# say NAME TEXT SECONDS-BEFORE SECONDS-AFTER
say() {
    espeak-ng -v en-us+f2 -s 160 -w raw.wav "$2"
    sox -R raw.wav -r 16000 -c 1 -b 16 "$1.wav" \
        silence 1 0.01 0.5% reverse silence 1 0.01 0.5% reverse gain -n -6 pad "$3" "$4"
    total=$(soxi -D "$1.wav")
    echo "$now $total $3 $4 $2" | awk '{
        printf "[%.2f, %.2f)", $1 + $3, $1 + $2 - $4
        for (i = 5; i <= NF; i++) printf " %s", $i
        print ""
    }'
    now=$(echo "$now $total" | awk '{ print $1 + $2 }')
}

say one "One program, one arena." 0.8 0.6
sox -R -n -r 16000 -c 1 -b 16 noise.wav \
    synth 0.8 pinknoise fade 0.05 0.8 0.05 gain -n -12 pad 0 0.6
echo "$now" | awk '{ printf "[%.2f, %.2f) (noise)\n", $1, $1 + 0.8 }'
now=$(echo "$now" | awk '{ print $1 + 1.4 }')
say two "Both methods see the same state." 0 0.9
say three "Reset, and begin again." 0 0.8
sox -R one.wav noise.wav two.wav three.wav "$here/speech.wav"
