"""parent - builds the newest commit whose code differs from this tree's, for --against parent.

The build is in build/parent/COMMIT. It is made once; builds of other commits are removed. If mounting is allowed, the
compiler sees the commit at this tree's path, so ccache finds all files that both have in common.
"""

import pathlib
import shutil
import subprocess
from xml.sax.saxutils import escape, quoteattr

from programs import Failure

FOLDER, WRITTEN = pathlib.Path("build/parent"), "build/speed.xml"
CODE = ["*.c", "*.h", "*.cc", "*.cmake", "CMakeLists.txt", "CMakePresets.json", ":!tests", ":!docs"]
TARGETS = ["benchmarks/all", "looping_pipeline", "transformer"]
COMMITS = 200  # how far to look back
SECONDS = 100  # limit for the build
# $1 is made to look like $2, if that is allowed.
MOUNTED = 'mount --bind "$1" "$2" && cd "$2" && shift 2 && exec "$@"'


class Absent(Exception):
    """There is nothing to compare with; the text is the reason, in one line."""


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    if done.returncode:
        raise Absent(f"git {words[0]}: {(done.stderr.splitlines() or ['no answer'])[-1]}")
    return done.stdout


def find():
    """Returns the newest ancestor whose code differs from the working tree's."""
    if not shutil.which("git"):
        raise Absent("there is no git here")
    try:
        commits = git("rev-list", "--first-parent", f"--max-count={COMMITS}", "HEAD").split()
    except Absent as reason:
        raise Absent("this folder is no clone of a repository") from reason
    added = git("ls-files", "--others", "--exclude-standard", "--", *CODE)  # git diff does not see these
    for commit in commits:
        status = subprocess.run(["git", "diff", "--quiet", commit, "--", *CODE], stderr=subprocess.DEVNULL).returncode
        if status > 1:
            raise Absent(f"git diff {commit[:8]} ends with status {status}")
        if status or added:
            return commit
    shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
    raise Absent(f"the clone is shallow: it ends {len(commits)} commits back, none with other code" if shallow else
                 f"none of the last {len(commits)} commits has other code")


def mounting(source):
    """Returns the prefix of a command that sees SOURCE at this tree's path; empty if mounting is not allowed."""
    for options in (["-m"], ["-rm"]):
        prefix = ["unshare", *options, "sh", "-c", MOUNTED, "sh", str(source.absolute()), str(pathlib.Path.cwd())]
        try:
            if not subprocess.run([*prefix, "true"], capture_output=True).returncode:
                return prefix
        except OSError:
            break
    return ["env", "-C", str(source)]


def make():
    """Builds the commit and returns the folder."""
    commit = find()
    source = FOLDER / commit
    build = source / "build/host"
    for other in FOLDER.glob("*"):
        if other != source:
            shutil.rmtree(other)
    if (source / "built").exists():
        return build
    source.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", commit], capture_output=True)
    if archive.returncode or subprocess.run(["tar", "-xC", source], input=archive.stdout).returncode:
        raise Absent(f"git archive {commit[:8]} cannot be unpacked")
    prefix = mounting(source)
    with open("build/parent.log", "w") as log:
        for step in (["cmake", "--preset", "host"], ["cmake", "--build", "--preset", "host", "--target", *TARGETS]):
            status = subprocess.run([*prefix, "timeout", str(SECONDS), *step], stdout=log, stderr=log).returncode
            if status == 124:
                raise Absent(f"{commit[:8]} is not built within {SECONDS} s; the next run continues")
            if status:
                raise Absent(f"{commit[:8]} does not build (log: build/parent.log)")
    (source / "built").touch()
    return build


def tell(lines, absent=None):
    """Writes a file for tests/summary.py: a test for each of LINES, or a single one, skipped for the reason ABSENT."""
    cases = []
    if absent:
        cases.append('<testcase name="beside the parent commit" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                     f"<system-out># SKIP {escape(absent)}</system-out></testcase>")
    for line in lines:
        status = "fail" if line["verdict"] == "slower" else "run"
        cases.append(f'<testcase name={quoteattr(line["comparison"])} status="{status}"/>')
    pathlib.Path(WRITTEN).write_text("<testsuite>" + "".join(cases) + "</testsuite>\n")


def open_build(options):
    """Sets options.against to the folder of the build. If there is none, returns the reason."""
    try:
        options.against = str(make())
        return None
    except Absent as reason:
        return str(reason)
    except OSError as error:
        raise Failure(f"--against parent: {error}") from error
