# Installs what scripts/release needs into .tools/, in these versions, since the bytes depend on them. To be sourced.
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# A compiler and linker for C with the libraries of each target, as wheels of PyPI.
need_zigbuild() {
    local tools=$PWD/.tools/zig
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        command -v python3 >/dev/null || { echo "missing: python3 with pip" >&2 && exit 69; }
        echo "installing the PyPI packages ziglang and cargo-zigbuild into .tools"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$tools" \
            ziglang==0.17.1 cargo-zigbuild==0.24.1 || exit 69
    fi
    export PATH=$tools/bin:$PATH CARGO_ZIGBUILD_ZIG_PATH=$tools/ziglang/zig
    export ZIG_GLOBAL_CACHE_DIR=$PWD/.tools/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/.tools/zig-cache
    # Its wrappers name the path of the compiler, so another clone must not share them.
    export CARGO_ZIGBUILD_CACHE_DIR=$PWD/.tools/zig-cache
}

need_cargo_deb() {
    [ -x .tools/cargo-deb/bin/cargo-deb ] && return
    echo "installing cargo-deb into .tools; minutes"
    cargo install --quiet --locked --root .tools/cargo-deb --version 3.8.0 cargo-deb || exit 69
}

need_buildah() {
    find_or_install buildah buildah >/dev/null || { echo "missing: buildah, in Debian the package of that name" >&2 && exit 69; }
}
