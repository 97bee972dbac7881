"""A PostgreSQL server in a temporary folder, for tests and for the lessons on the store."""
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, create_engine, make_url

from memkit.store.schema import with_driver


def server_programs() -> Path:
    "The folder of `initdb` and `pg_ctl`: on the path, or where Debian puts them. Raises `FileNotFoundError`."
    if found := shutil.which("initdb"): return Path(found).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    if not found: raise FileNotFoundError("PostgreSQL's server isn't installed; on Debian: apt install postgresql")
    return found[-1].parent


def _unprivileged() -> dict[str, object]:  # for subprocess: root becomes somebody else
    if os.name != "posix" or os.getuid(): return {}
    import pwd
    known = {p.pw_name for p in pwd.getpwall()}
    who = pwd.getpwnam("postgres" if "postgres" in known else "nobody")
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


@contextmanager
def temporary_postgres() -> Iterator[str]:  # the address of a database
    """A server in a temporary folder, stopped and removed at the end (ours). Raises `FileNotFoundError` where
    PostgreSQL isn't installed."""
    programs, who = server_programs(), _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="memkit-pg-", dir="/tmp"))     # a socket's path is 107 bytes at most
    if who: os.chown(folder, who["user"], who["group"])
    def run(program: str, *options: str):
        done = subprocess.run([programs/program, "-D", folder/"data", *options], cwd=folder, **who,
                              stdin=subprocess.DEVNULL, stdout=(folder/"log").open("ab"), stderr=subprocess.STDOUT)
        if done.returncode: raise RuntimeError(f"{program} failed: {(folder/'log').read_text(errors='replace')[-500:]}")
    try:
        run("initdb", "-A", "trust", "-U", "memkit", "-E", "UTF8", "--locale=C", "--no-sync")
        run("pg_ctl", "-w", "-o", f"-c listen_addresses='' -k {folder} -c max_connections=200", "start")
        try: yield f"postgresql://memkit@/postgres?host={folder}"
        finally: run("pg_ctl", "-m", "immediate", "stop")
    finally: shutil.rmtree(folder, ignore_errors=True)


def _say(address: str, statement: str) -> URL:
    url = make_url(with_driver(address))
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as conn: conn.exec_driver_sql(statement)
    engine.dispose()
    return url

def drop_database(address: str, name: str):
    "Remove a database, whoever is connected to it."
    _say(address, f'DROP DATABASE "{name}" WITH (FORCE)')


def new_database(
    address: str,   # of a database on the server
    name: str,
) -> str:           # its address
    "Make an empty database beside the one that is there."
    url = _say(address, f'CREATE DATABASE "{name}"')
    return url.set(database=name).render_as_string(hide_password=False).replace("+psycopg", "", 1)
