'use strict'

// KafkaJS behind commands: one JSON line on standard input, one on standard output for each. It ends with its input.

const fs = require('fs')
const readline = require('readline')
const { Kafka, PartitionAssigners, ConfigResourceTypes, logLevel } = require('kafkajs')

const ASSIGNERS = { roundrobin: PartitionAssigners.roundRobin }

/** The settings for TLS and SASL that the variable CLIENT_SECURITY asks for; without it, none. */
const security = () => {
  if (!process.env.CLIENT_SECURITY) return {}
  const { ca, mechanism, user, password, token } = JSON.parse(process.env.CLIENT_SECURITY)
  const secret = token ? { oauthBearerProvider: async () => ({ value: token }) } : { username: user, password }
  return { ssl: { ca: [fs.readFileSync(ca)] }, sasl: { mechanism: mechanism.toLowerCase(), ...secret } }
}

const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, ...security() })
const admin = kafka.admin()
const producer = kafka.producer()
const members = new Map()

/** A consumer whose records are kept until they are polled. */
class Member {
  constructor({ topic, group, assignor, auto_commit, heartbeat_ms, fetch_ms }) {
    const settings = { groupId: group }
    if (assignor) settings.partitionAssigners = [ASSIGNERS[assignor]]
    if (heartbeat_ms) settings.heartbeatInterval = heartbeat_ms
    if (fetch_ms) settings.maxWaitTimeInMs = fetch_ms
    this.topic = topic
    this.autoCommit = auto_commit
    this.records = []
    this.assigned = []
    this.failed = null
    this.wake = () => {}
    this.consumer = kafka.consumer(settings)
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.assigned = payload.memberAssignment[topic] || []
    })
    this.consumer.on(REBALANCING, () => {
      this.assigned = []
    })
    this.consumer.on(CRASH, ({ payload }) => {
      if (!payload.restart) this.failed = payload.error
    })
  }

  async open() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    // It joins and fetches from here on; this does not wait until it has joined.
    this.running = this.consumer.run({
      autoCommit: this.autoCommit,
      eachMessage: async ({ partition, message }) => {
        this.records.push([partition, Number(message.offset), message.value.toString()])
        this.wake()
      },
    })
    this.running.catch(error => {
      this.failed = error
    })
  }

  async poll(ms) {
    if (!this.records.length) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, ms)
        this.wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    if (this.failed) throw this.failed
    return this.records.splice(0)
  }
}

const partitionsOf = async topic => {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.length
}

const byPartition = entries => Object.fromEntries(entries.map(one => [one.partition, Number(one.offset)]))

let connecting = null

/** Connect at the first command, whose answer is the error if there is one. */
const connected = () => {
  connecting ||= Promise.all([admin.connect(), producer.connect()])
  return connecting
}

const commands = {
  produce: async ({ topic, values, partition }) => {
    const where = partition === null ? {} : { partition }
    await producer.send({ topic, messages: values.map(value => ({ value, ...where })) })
  },
  open: async command => {
    const member = new Member(command)
    members.set(command.member, member)
    await member.open()
  },
  poll: ({ member, ms }) => members.get(member).poll(ms),
  assigned: ({ member }) => members.get(member).assigned,
  commit: async ({ member, offsets }) => {
    const { consumer, topic } = members.get(member)
    const told = Object.entries(offsets).map(([partition, offset]) => ({
      topic,
      partition: Number(partition),
      offset: String(offset),
    }))
    await consumer.commitOffsets(told)
  },
  seek: ({ member, partition, offset }) => {
    const { consumer, topic } = members.get(member)
    consumer.seek({ topic, partition, offset: String(offset) })
  },
  pause: ({ member, partition }) => {
    const { consumer, topic } = members.get(member)
    consumer.pause([{ topic, partitions: [partition] }])
  },
  resume: ({ member, partition }) => {
    const { consumer, topic } = members.get(member)
    consumer.resume([{ topic, partitions: [partition] }])
  },
  close: async ({ member }) => {
    await members.get(member).consumer.disconnect()
    members.delete(member)
  },
  offsets_for_time: async ({ topic, at }) => byPartition(await admin.fetchTopicOffsetsByTimestamp(topic, at)),
  committed: async ({ group, topic }) => {
    const [told] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return byPartition(told.partitions)
  },
  create_topic: async ({ topic, partitions, configs }) => {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] })
  },
  topics: () => admin.listTopics(),
  partitions: ({ topic }) => partitionsOf(topic),
  create_partitions: async ({ topic, total }) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
  },
  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  configs: async ({ topic }) => {
    const told = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    return Object.fromEntries(told.resources[0].configEntries.map(one => [one.configName, one.configValue]))
  },
  alter_config: async ({ topic, name, value }) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }
    await admin.alterConfigs({ resources: [resource] })
  },
  groups: async () => (await admin.listGroups()).groups.map(one => one.groupId),
  describe_group: async ({ group }) => {
    const [told] = (await admin.describeGroups([group])).groups
    return [told.state, told.members.length]
  },
  delete_group: ({ group }) => admin.deleteGroups([group]),
}

/** An error with the kind of its cause, in the words of the broker: KafkaJS wraps some, with the groups that they are about. */
const words = error => {
  const cause = error.cause || error
  return [cause.type || cause.name, error.message, ...(error.groups || []).map(one => `${one.error}`)].join(': ')
}

const main = async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer
    try {
      const command = JSON.parse(line)
      await connected()
      answer = { result: (await commands[command.op](command)) ?? null }
    } catch (error) {
      answer = { error: words(error) }
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
  await Promise.all([admin.disconnect(), producer.disconnect()])
}

main().catch(error => {
  console.error(error)
  process.exitCode = 1
})
