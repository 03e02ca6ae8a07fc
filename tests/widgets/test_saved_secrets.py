"""Each way of running and saving a notebook without a browser: what a secret field is handed is not kept.

A plain password field in the same notebook shows that the search would find it.
"""

API_KEY = "an-api-key-that-somebody-typed-0123456789"
PRIVATE_KEY = "0xc0ffee11decade22c0ffee33decade44c0ffee55decade66c0ffee77decade88"
PLAIN = "this-one-was-typed-into-a-plain-field"
CELLS = [
    """import os
import ipywidgets
import loopring_lab as lab
from loopring_lab.relayer import Relayer, World
relayer = Relayer(World(size=0.001), api_key=os.environ["TYPED_API_KEY"]).start()
client = lab.connect(relayer.base_url, api_key="none", rate=None)
def front_end_sends(field, typed):
    data = {"method": "custom", "content": {"typed": typed}}
    field.comm.handle_msg({"content": {"data": data}, "buffers": []})""",
    """explorer = lab.widgets.FeeExplorer(client, account=10083)
explorer.view; explorer.wait()
assert explorer.needs_key
front_end_sends(explorer.view.key, os.environ["TYPED_API_KEY"]); explorer.wait()
assert explorer.is_read
explorer""",
    """wizard = lab.widgets.KeyUpdateWizard(client, account=10083, way="key")
wizard.view.next.click(); wizard.wait()
front_end_sends(wizard.view.private_key, os.environ["TYPED_PRIVATE_KEY"]); wizard.wait()
assert "does not own" in wizard.problem or wizard.step == "preview", wizard.problem
wizard""",
    """plain = ipywidgets.Password(description="Plain:")
plain.comm.handle_msg({"content": {"data": {"method": "update", "state": {"value": os.environ["TYPED_PLAIN"]}}}, "buffers": []})
plain""",
    "relayer.stop()",
]
WAYS = {
    "nbconvert": ["jupyter", "nbconvert", "--execute", "--to", "notebook", "--output", "saved.ipynb"],
    "nbconvert to a page": ["jupyter", "nbconvert", "--execute", "--to", "html", "--output", "saved.html"],
    "nbclient": ["jupyter", "execute", "--output", "saved"],
    "papermill": ["papermill", "--no-progress-bar", "-k", "python3"],
}
