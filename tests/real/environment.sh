# What `run` gets from outside: Python environments, NVIDIA's runtime 10.2, the stand-in runtime. Sourced by it.
#
# An environment is made once for each list of requirements and Python, and found again by their hash.

only() { # PATH...: the one file that a pattern stands for
    [ $# -eq 1 ] && [ -e "$1" ] || stop "expected one file, found: $*"
    echo "$1"
}

# The folder of the packages in $prefix.
packages() { only "$prefix"/lib/python3.*/site-packages; }

room() { # GIGABYTES WHAT
    mkdir -p "$cache"
    local free_kib
    free_kib=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
    [ "$free_kib" -ge $(($1 << 20)) ] || stop "$2 needs $1 GB in $cache, where $((free_kib >> 20)) GB are free"
}

registry() { # WHAT COMMAND...: a command that fetches packages; its last words when it fails
    local what=$1
    shift
    timeout 1800 "$@" > "$work/registry.log" 2>&1 ||
        stop "$what could not be had from the Python registry: $(grep -E '[^[:space:]]' "$work/registry.log" | tail -n 1)"
}

# REQUIREMENTS PYTHON GIGABYTES: leaves in $prefix the folder of an environment with these packages, which take so much.
environment() {
    local list=$here/$1 version key
    version=$("$2" -c 'import platform, sys; print("%d.%d" % sys.version_info[:2], platform.machine())')
    key=$({ cat "$list"; echo "$version"; } | sha256sum | cut -c 1-16)
    prefix=$cache/$(basename "$1" .txt)-$key
    mkdir -p "$cache"
    (
        flock 9
        if [ -e "$prefix/complete" ] && "$prefix/bin/python" -c '' 2> /dev/null; then
            exit 0
        fi
        room "$3" "$1"
        echo "note  $1: installing into $prefix, once"
        rm -rf "$prefix"
        "$2" -m venv "$prefix" > "$work/registry.log" 2>&1 ||
            stop "$2 can't make an environment ($(head -n 1 "$work/registry.log")); install its venv module"
        registry "$1" "$prefix/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-cache-dir \
            --only-binary=:all: -r "$list"
        touch "$prefix/complete"
    ) 9> "$cache/lock"
}

python_3_10() {
    local candidate
    for candidate in "${PYTHON310:-}" python3.10 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3.10; do
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 10))' 2> /dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# Leaves in $library NVIDIA's runtime 10.2, which is in the wheel of PyTorch 1.12.1 for Python 3.10. Where there is that
# Python, $has_torch_1 says true and the whole of it is installed in $prefix; else only the runtime is taken out.
runtime_10_2() {
    local python310
    [ "$(uname -m)" = x86_64 ] || stop "NVIDIA's runtime 10.2 is to be had for x86-64 only"
    python310=$(python_3_10)
    has_torch_1=true
    if [ -n "$python310" ]; then
        environment requirements-runtime-10.2.txt "$python310" 4
        library=$(only "$(packages)"/torch/lib/libcudart-*.so.10.2)
        return
    fi
    has_torch_1=false
    library=$cache/libcudart.so.10.2
    [ -e "$library" ] && return
    room 2 "the wheel of PyTorch 1.12.1"
    echo "note  NVIDIA's runtime 10.2: fetching the wheel of PyTorch 1.12.1, once"
    registry "PyTorch 1.12.1" "$python" -m pip download --quiet --no-input --disable-pip-version-check --no-cache-dir \
        --no-deps --only-binary=:all: --python-version 3.10 --platform manylinux1_x86_64 --dest "$work/wheel" torch==1.12.1
    "$python" - "$work"/wheel/*.whl "$work/libcudart.so.10.2" <<- 'END'
	import re, sys, zipfile
	wheel = zipfile.ZipFile(sys.argv[1])
	[member] = [name for name in wheel.namelist() if re.fullmatch(r"torch/lib/libcudart-\w+\.so\.10\.2", name)]
	open(sys.argv[2], "wb").write(wheel.read(member))
	END
    rm -rf "$work/wheel"
    mv "$work/libcudart.so.10.2" "$library"
}

stand_in() { # FILE: builds the stand-in runtime, with the headers that came with $prefix
    cc -std=gnu11 -Wall -Wextra -Werror -O1 -fPIC -fvisibility=hidden -isystem "$(packages)/nvidia/cu13/include" \
        -shared -Wl,-Bsymbolic -Wl,-z,defs -Wl,-soname,libcudart.so.13 \
        -Wl,--version-script="$here/standrt/libcudart.map" -o "$1" "$here"/standrt/*.c -ldl -lpthread
}
