import io
import json
import logging
import subprocess
import sys

from pydantic import SecretStr

from pipeline.observe.logging import configure_logging, get_logger, mask_secrets
from pipeline.store.session import make_engine


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_away_from_a_terminal_each_event_is_one_json_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)

    get_logger("events").info("unit.finished", run=7, stage="describe")

    [line] = _lines(stream)
    assert line["event"] == "unit.finished"
    assert (line["run"], line["stage"], line["level"], line["logger"]) == (7, "describe", "info", "tidegate.events")


def test_libraries_speak_through_the_same_formatter() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)

    logging.getLogger("celery.worker").info("connected")
    logging.getLogger("celery.worker").warning("connection %s", "lost")

    [line] = _lines(stream)
    assert line["event"] == "connection lost"


def test_a_level_keeps_lower_events_out() -> None:
    stream = io.StringIO()
    configure_logging("warning", stream=stream)

    get_logger("x").info("a.said")
    get_logger("x").warning("b.said")

    assert [line["event"] for line in _lines(stream)] == ["b.said"]


def test_secrets_are_masked_in_messages_fields_and_tracebacks() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, secrets=['sk-"quoted"-ключ', "pass-word"])

    try:
        raise ValueError("url http://u:pass-word@host")
    except ValueError:
        get_logger("x").exception("call.failed", key='sk-"quoted"-ключ', nested={"deep": ["pass-word"]})

    text = stream.getvalue()
    assert "pass-word" not in text
    assert "quoted" not in text
    [line] = _lines(stream)
    assert line["nested"] == {"deep": ["**********"]}


def test_a_secret_is_masked_as_a_url_writes_it() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, secrets=["pass/word@1", "ключ-к"])

    get_logger("x").info("url.read", url="redis://:pass%2Fword%401@host", key="%D0%BA%D0%BB%D1%8E%D1%87-%D0%BA")

    [line] = _lines(stream)
    assert (line["url"], line["key"]) == ("redis://:**********@host", "**********")


def test_a_secret_that_is_learned_later_is_masked_from_then_on() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, secrets=["first-key"])
    mask_secrets(["second-key"])
    get_logger("test").info("key.read", one="first-key", two="second-key")
    assert "-key" not in stream.getvalue()
    assert stream.getvalue().count("**********") == 2


def test_a_secret_type_shows_no_value() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)

    get_logger("x").info("key.read", key=SecretStr("never-shown"))

    assert "never-shown" not in stream.getvalue()


def test_tracebacks_hold_no_local_variables() -> None:
    for fmt in ("json", "console"):
        stream = io.StringIO()
        configure_logging(fmt=fmt, stream=stream)
        prompt = "the whole page"
        try:
            raise KeyError(len(prompt))
        except KeyError:
            get_logger("x").exception("stage.failed")
        assert "stage.failed" in stream.getvalue()
        assert "the whole page" not in stream.getvalue()


def test_the_connection_pool_says_nothing_of_its_own_affairs() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)

    make_engine("postgresql://here/name").pool.dispose()

    assert stream.getvalue() == ""


def test_a_process_that_logs_nothing_imports_no_structlog() -> None:
    code = (
        "import sys; from pipeline.observe.logging import configure_logging; configure_logging();"
        "print({'structlog', 'rich'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "set()"
