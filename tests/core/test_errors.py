import inspect
import pickle

import pytest

from fuelnumba.core import errors
from fuelnumba.core.errors import FuelError, ShapeError, TracedBoolError, TracingError
from fuelnumba.core.source import user_location

CLASSES = [getattr(errors, name) for name in errors.__all__]

BUILTIN = {
    "ShapeError": (ValueError,),
    "DTypeError": (TypeError,),
    "AxisError": (ValueError, IndexError),
    "ArgumentError": (TypeError,),
    "PromotionError": (TypeError,),
    "InputArrayError": (ValueError,),
    "TracingError": (TypeError,),
    "NoKernelError": (NotImplementedError,),
    "FuelIndexError": (IndexError,),
    "UnsupportedAttributeError": (AttributeError,),
}

TRACING = {
    "TracedBoolError",
    "TracedConversionError",
    "TracedIterationError",
    "TracedMutationError",
    "TracedToNumpyError",
    "LeakedTracerError",
    "UnsupportedAttributeError",
    "UnsupportedFunctionError",
    "StaleCaptureError",
}


def test_all_is_complete():
    defined = {
        name
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, Exception) and cls.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_class_has_its_place_and_its_words(cls):
    assert issubclass(cls, FuelError)
    for base in BUILTIN.get(cls.__name__, ()):
        assert issubclass(cls, base)
    assert (cls.__name__ in TRACING) == (issubclass(cls, TracingError) and cls is not TracingError)
    doc = inspect.getdoc(cls)
    assert doc is cls.__doc__ or "__doc__" in vars(cls), "the words must be its own"
    assert "**Cause**" in doc and "**Cure**" in doc
    assert "\n\n    " in doc, "an example, indented"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_constructor_keeps_its_parts_and_survives_pickle(cls):
    where = user_location()
    err = cls("what happened", where=where, cure="do this")
    assert (err.what, err.where, err.cure) == ("what happened", where, "do this")
    copy = pickle.loads(pickle.dumps(err))
    assert (type(copy), str(copy), copy.where) == (cls, str(err), where)


def test_message_alone():
    assert str(ShapeError("shapes (2, 3) and (4,) do not fit")) == "shapes (2, 3) and (4,) do not fit"


def test_message_with_cure():
    err = ShapeError("shapes do not fit", cure="transpose one\nor reshape it")
    assert str(err) == "shapes do not fit\n   = transpose one\n     or reshape it"


def test_message_with_where_and_cure(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("\n" * 10 + "def f(x):\n    if x > 0:\n        return x\n    return -x\n")

    class Traced:
        def __gt__(self, other):
            return self

        def __bool__(self):
            raise TracedBoolError(
                "bool() of a traced value", where=frame_of(1), cure="use np.where(cond, a, b)"
            )

    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(TracedBoolError) as caught:
        space["f"](Traced())
    assert str(caught.value) == (
        "bool() of a traced value\n"
        f"  --> {file}:12, in f\n"
        "   |\n"
        "12 |     if x > 0:\n"
        "   |        ^^^^^\n"
        "   = use np.where(cond, a, b)"
    )


def frame_of(_):
    """The location of the first frame outside this file, as if this file were the package."""
    import sys

    from fuelnumba.core import source

    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return source.locate(frame.f_code, frame.f_lasti)
