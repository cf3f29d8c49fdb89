# Installs the Python packages for the tests of docs/jobs into .tools/jobs: the schemas of Kubernetes, GitHub Actions,
# GitLab CI and Compose, and Ansible. To be sourced.

# install_for_jobs NAME PACKAGE...: into a folder of this name, once.
install_for_jobs() {
    local name=$1 folder=.tools/jobs/$1
    shift
    [ "$(cat "$folder/installed" 2>/dev/null)" != "$*" ] || return 0
    command -v python3 >/dev/null || return 1
    echo "installing the PyPI packages $* into $folder"
    rm -rf "$folder"
    # A registry that does not answer must not block the tests.
    timeout --kill-after 5 180 python3 -m pip install --quiet --disable-pip-version-check --no-compile \
        --root-user-action ignore --target "$folder" "$@" </dev/null || { rm -rf "$folder" && return 1; }
    echo "$*" >"$folder/installed"
}

find_or_install_for_jobs() {
    install_for_jobs schemas kubernetes-validate==1.37.0 check-jsonschema==0.39.0 ||
        echo "the manifests and CI files of docs/jobs are not checked"
    # A version that Python 3.11 can still run.
    install_for_jobs ansible ansible-core==2.19.14 || echo "the playbooks of docs/jobs are not run"
}
