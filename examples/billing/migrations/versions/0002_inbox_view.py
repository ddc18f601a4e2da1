"""What autogenerate does not see of the inbox: its version, and the view for people."""

from alembic import op

from billing.models import INBOX_TABLES
from inbox.tables import version_rows, view_definition

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(version_rows(INBOX_TABLES, [1]))
    op.execute(view_definition(INBOX_TABLES))


def downgrade() -> None:
    op.execute("DROP VIEW inbox_view")
    op.execute("DELETE FROM inbox_schema WHERE version = 1")
