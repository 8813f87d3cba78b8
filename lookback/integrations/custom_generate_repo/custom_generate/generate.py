"""Best of n by LookBack: `model.generate(..., custom_generate=..., trust_remote_code=True, n=25)`.

All of it is in the package lookback-vlm (`lookback/integrations/custom_generate.py`), whose tests
it passes; here is only the way to it.
"""

try:  # inside `try`, as transformers would else tell its users to install a package `lookback`
    from lookback.integrations.custom_generate import generate
except ImportError as error:
    raise ImportError(
        "custom_generate by LookBack needs its package: pip install 'lookback-vlm>=0.2'"
    ) from error

__all__ = ["generate"]
