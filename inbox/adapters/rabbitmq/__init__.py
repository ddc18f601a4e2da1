"""Events from a RabbitMQ queue.

`RabbitMQ` is the transport; `delivery_from` serves those who have their own aio-pika consumer.
"""

from inbox.adapters.rabbitmq.delivery import delivery_from
from inbox.adapters.rabbitmq.depths import QueueDepth
from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings, TlsSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ

__all__ = [
    "Binding",
    "Publisher",
    "QueueDepth",
    "RabbitMQ",
    "RabbitMQSettings",
    "TlsSettings",
    "delivery_from",
]
