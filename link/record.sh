#!/usr/bin/env bash
# Writes link/agent.symbols anew: the functions of the program that `addon-signer agent` runs when it starts, enrols, proves its
# certificate, stores it in a directory or in a Secret, watches that Secret, and starts again. build.rs places them together.
# Worth it when benches/agent.rs shows that the agent has grown: after a change of the compiler, of
# dependencies, or of the agent. Needs valgrind and nm, and takes a build with the profile `image` and five minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# With its names, which `cargo build --profile image` removes; otherwise the same program.
cargo rustc --profile image --locked --bin addon-signer -- -C strip=none
cp target/image/addon-signer "$work/program"

# The bench starts this as the agent: it ends its run in time to be recorded, and sleeps until the bench ends it.
cat >"$work/agent" <<WRAPPER
#!/usr/bin/env bash
timeout --signal TERM 40 valgrind --tool=callgrind --demangle=no --compress-strings=no \\
    --callgrind-out-file="$work/%p.run" "$work/program" "\$@"
exec sleep 120
WRAPPER
chmod +x "$work/agent"
cargo bench --profile dev --locked --bench agent -- --rounds 1 --pause 45 --program "$work/agent"

export LC_ALL=C
sed -n "s/^fn=//p" "$work"/*.run | sed "s/'[0-9]*\$//" | sort -u >"$work/ran"
nm --defined-only --print-size --numeric-sort --radix=d "$work/program" | awk '$3 ~ /^[tTwW]$/' >"$work/functions"
# In their order in the file, but last those that share their name with functions for other types, which did not run: a
# build in which the hashes are others places those as well. A longer name is a type's destructor and not worth its line.
awk -v longest=600 '
    FNR == NR { ran[$1]; next }
    length($4) <= longest {
        name = $4
        sub(/17h[0-9a-f]+E$/, "", name)
        all[name] += $2 + 1
        if ($4 in ran) { symbol[++count] = $4; base[count] = name; used[name] += $2 + 1 }
    }
    END { for (i = 1; i <= count; i++) printf "%d %d %s\n", 10 * used[base[i]] / all[base[i]], i, symbol[i] }
' "$work/ran" "$work/functions" | sort -k1,1nr -k2,2n | cut -d" " -f3 >link/agent.symbols
printf '%s functions in link/agent.symbols\n' "$(wc -l <link/agent.symbols)"
